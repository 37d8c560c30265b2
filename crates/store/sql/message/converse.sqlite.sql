-- There is one writer.
SELECT agent FROM inbox WHERE agent = $1

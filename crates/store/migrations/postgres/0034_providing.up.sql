-- Which pools and models there are is asked for by the sessions that provide for some, whatever
-- other sessions there are.
CREATE INDEX session_providing ON session (created_at) WHERE routes -> 'pools' <> '[]';

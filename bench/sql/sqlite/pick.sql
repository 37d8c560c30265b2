SELECT st.rowid, st.id, s.payload
FROM floor_state st
JOIN floor_spec s ON s.id = st.id
WHERE st.ready AND st.queue = ?1 AND st.profile = 'job'
ORDER BY st.order_key, st.id
LIMIT ?2

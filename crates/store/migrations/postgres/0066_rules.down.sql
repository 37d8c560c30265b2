DROP FUNCTION windlass_rules_stand(bigint);

SELECT {alert_columns} FROM alert WHERE id = $1::uuid

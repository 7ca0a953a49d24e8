t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers, sync_mode=False)

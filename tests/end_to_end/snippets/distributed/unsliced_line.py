t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers, slice_var_up=False)

# 启动server
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()

# 启动worker
if fleet.is_worker():
    # 初始化worker配置
    fleet.init_worker()

    feeder = fluid.DataFeeder(place=place, feed_list=[x, y])
    train_reader = paddle.batch(fake_reader(), batch_size=24)

    exe.run(fleet.startup_program)

    PASS_NUM = 10
    for pass_id in range(PASS_NUM):
        for batch_id, data in enumerate(train_reader()):
            avg_loss_value, auc_value, auc_batch_value = \
                exe.run(fleet.main_program, feed=feeder.feed(data), fetch_list=[avg_cost, auc, auc_batch])
            print("Pass %d, cost = %f, auc = %f, batch_auc = %f" % (pass_id, avg_loss_value, auc_value, auc_batch_value))
    # 通知server，当前节点训练结束
    fleet.stop_worker()

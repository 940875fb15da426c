"""`mqadmin`: RocketMQ's administration commands, for hands and scripts that know them."""

"""`mqadmin`: RocketMQ's administration commands, for people and scripts that know them."""

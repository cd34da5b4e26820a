-- What operators see at a glance: the GPUs of the market, and machines whose identity two hosts have.
create index offerings_gpus on offerings (gpu_total) where listed = 1;
create index machines_copied on machines (copied_ms, id) where copied_ms is not null;

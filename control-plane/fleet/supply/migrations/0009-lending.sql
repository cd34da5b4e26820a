-- When the contract that has set a GPU aside begins. A launch that is over before may have the GPU until then. Null: nobody else may.
alter table machine_gpus add column reserved_from_ms INTEGER;

create index machine_gpus_by_lending on machine_gpus (gpu_type, reserved_from_ms) where reserved_from_ms is not null;

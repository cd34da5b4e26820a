-- What operators see at a glance: the GPUs that are rented, and what they bring in an hour.
create index instances_rented on instances (status, gpu_count, price_ucents_per_hour) where status in ('running', 'unreachable');

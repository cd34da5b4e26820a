-- The jobs that wait for a machine, oldest first. They are served in this order.
create index finetuning_jobs_waiting on finetuning_jobs (created_ms, id)
  where status = 'queued' and workload_id is null and cancel_ms is null;

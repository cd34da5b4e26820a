-- A new job is refused if those that were cancelled or that failed within a day have held GPUs for too long without paying.
create index finetuning_jobs_unpaid on finetuning_jobs (org_id, (coalesce(cancel_ms, finished_ms)))
  where cancel_ms is not null or status = 'failed';

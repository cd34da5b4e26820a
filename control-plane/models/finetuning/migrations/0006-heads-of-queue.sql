-- The jobs that wait for a machine. The first job of each organisation with the same terms is found without reading those behind it. Within an
-- organisation, a job that has lost its machine comes first, then the oldest one.
drop index finetuning_jobs_waiting;
create index finetuning_jobs_waiting on finetuning_jobs (terms, org_id, (case when tried_machine_ids = '[]' then 1 else 0 end), created_ms, id)
  where status = 'queued' and workload_id is null and cancel_ms is null;

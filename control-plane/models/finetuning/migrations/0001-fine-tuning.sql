-- Fine-tuning jobs: what was asked, what they may cost and have cost, and where they run now.
create table finetuning_jobs (
  id TEXT not null primary key,
  org_id TEXT not null,
  api_key_id TEXT not null,
  model TEXT not null,
  training_file TEXT not null,
  file_key TEXT not null,
  file_bytes INTEGER not null,
  file_sha256 TEXT not null,
  status TEXT not null,
  request TEXT not null,
  terms TEXT not null,
  budget_ucents INTEGER not null check (budget_ucents > 0),
  charged_ucents INTEGER not null default 0,
  workload_id TEXT,
  tried_machine_ids TEXT not null default '[]',
  cancel_ms INTEGER,
  error_code TEXT,
  error_message TEXT,
  event_count INTEGER not null default 0,
  created_ms INTEGER not null,
  queued_ms INTEGER not null,
  finished_ms INTEGER,
  due_ms INTEGER,
  check (charged_ucents between 0 and budget_ucents)
) STRICT;

create index finetuning_jobs_due on finetuning_jobs (due_ms, created_ms) where due_ms is not null;
create index finetuning_jobs_of_org on finetuning_jobs (org_id, created_ms, id);
create index finetuning_jobs_open on finetuning_jobs (status, org_id) where status in ('validating', 'queued', 'running');
create index finetuning_jobs_by_file on finetuning_jobs (training_file) where status in ('validating', 'queued', 'running');

-- One row for each machine that a job was placed on. The id is that of the workload.
create table finetuning_attempts (
  id TEXT not null primary key,
  job_id TEXT not null,
  machine_id TEXT not null,
  supplier_id TEXT not null,
  gpu_type TEXT not null,
  rate_ucents_per_hour INTEGER not null,
  supplier_rate_ucents_per_hour INTEGER not null,
  supplier_bps INTEGER not null,
  resume_file_id TEXT,
  resume_step INTEGER not null default 0,
  run_ms_max INTEGER not null,
  events_offset INTEGER not null default 0,
  last_step INTEGER,
  last_loss TEXT,
  offline_since_ms INTEGER,
  created_ms INTEGER not null,
  started_ms INTEGER,
  stopped_ms INTEGER,
  charged_through_ms INTEGER,
  charged_ucents INTEGER not null default 0,
  supplier_ucents INTEGER not null default 0,
  skipped_from_ms INTEGER
) STRICT;

create index finetuning_attempts_of_job on finetuning_attempts (job_id, created_ms);

-- The files that hosts upload: checkpoints and results.
create table finetuning_files (
  id TEXT not null primary key,
  job_id TEXT not null,
  workload_id TEXT not null,
  kind TEXT not null,
  name TEXT not null,
  step INTEGER not null default 0,
  loss TEXT,
  bytes INTEGER not null,
  sha256 TEXT not null,
  state TEXT not null,
  blob_key TEXT,
  created_ms INTEGER not null,
  unique (workload_id, kind, name)
) STRICT;

create index finetuning_files_of_job on finetuning_files (job_id, kind, created_ms, id);
create index finetuning_files_blobs on finetuning_files (blob_key) where blob_key is not null;
create index finetuning_files_kept on finetuning_files (job_id, created_ms, id) where blob_key is not null;

create table finetuning_events (
  id TEXT not null primary key,
  job_id TEXT not null,
  level TEXT not null,
  type TEXT not null,
  message TEXT not null,
  data TEXT not null,
  created_ms INTEGER not null
) STRICT;

create index finetuning_events_of_job on finetuning_events (job_id, id);

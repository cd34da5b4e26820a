-- The jobs of each model that are at servers. Their count walks no jobs that wait.
create index video_jobs_sent on video_jobs (model_id, org_id) where status in ('queued', 'in_progress') and upstream is not null;

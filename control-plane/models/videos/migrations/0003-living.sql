-- A list walks no deleted videos, and the count of the jobs of a server walks no jobs of other servers.
drop index video_jobs_of_org;
create index video_jobs_of_org on video_jobs (org_id, created_ms, id) where deleted_ms is null;
create index video_jobs_at on video_jobs (upstream) where status in ('queued', 'in_progress');
create index video_jobs_left_at on video_jobs (upstream) where upstream_open = 1 and status in ('cancelled', 'failed', 'expired');
create index video_jobs_forgotten on video_jobs (deleted_ms)
where deleted_ms is not null and charged_ucents = 0 and due_ms is null and upstream_open = 0;

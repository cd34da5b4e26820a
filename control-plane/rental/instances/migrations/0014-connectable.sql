-- What each scrape of the metrics of an organisation reads. Without it, a scrape would read all instances that the organisation ever had.
create index instances_connectable on instances (org_id, id) where status in ('running', 'unreachable');

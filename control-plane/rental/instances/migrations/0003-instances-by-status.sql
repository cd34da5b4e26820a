-- How many there are of each status; those that are over are too many to count.
create index instances_by_status on instances (status) where status <> 'terminated';

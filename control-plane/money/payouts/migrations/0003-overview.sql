-- What operators see at a glance: the disputes that wait.
create index disputes_waiting on disputes (opened_ms, id) where state = 'open';

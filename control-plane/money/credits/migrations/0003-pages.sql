-- Pages of the operator's lists: credits that wait come before decided ones.
create index held_credits_page on held_credits ((case when state = 'held' then 1 else 0 end), created_ms, id);
create index credit_flags_page on credit_flags (flagged_ms, org_id) where flagged_ms is not null;

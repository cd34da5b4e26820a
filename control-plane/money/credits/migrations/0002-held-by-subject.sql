create index held_credits_of_subject on held_credits (subject_id, created_ms);

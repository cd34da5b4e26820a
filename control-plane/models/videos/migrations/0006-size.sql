-- The size of the picture that was asked for. It tells the videos of a list apart, also when their prompts are gone.
alter table video_jobs add column size TEXT;

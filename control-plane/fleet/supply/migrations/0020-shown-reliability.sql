-- What customers see of how reliable the machine was, in hundredths of a percent; null while too little is known.
alter table offerings add column uptime_bps INTEGER;
alter table offerings add column failed_launch_share_bps INTEGER;

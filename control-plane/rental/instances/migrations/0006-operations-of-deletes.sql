-- Several keys may ask for the end of one instance: their operations name it (`operations.resource_id`).
alter table instances drop column delete_operation_id;

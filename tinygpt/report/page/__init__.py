"""One static page of tables: whole without JavaScript, filtered with it, readable on a phone."""

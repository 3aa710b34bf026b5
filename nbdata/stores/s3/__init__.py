"""S3 and compatible stores."""

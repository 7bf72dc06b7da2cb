"""What the operator does for a SparkPipeline: its service, and the pods of its drivers."""

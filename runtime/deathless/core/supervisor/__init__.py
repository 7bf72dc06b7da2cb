"""What supervisors decide: when a primary has failed, and what to believe of what others say."""

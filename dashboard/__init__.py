"""Dashboard side: speaks to the broker over the Kafka protocol only."""

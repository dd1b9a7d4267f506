"""Messages that Kafka 4.4 has and kio does not, written in kio's style so that ``codec`` reads them."""

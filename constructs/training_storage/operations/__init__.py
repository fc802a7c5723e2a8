"""What talks to AWS through boto3. Planning and constructs never import it."""

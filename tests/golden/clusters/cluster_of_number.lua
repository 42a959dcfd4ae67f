return cluster(8)

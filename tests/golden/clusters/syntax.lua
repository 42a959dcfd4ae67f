return cluster {
  name = = "mine"
}

return model { axes = {} }

package assembly

func placeBreakpoints(p *Prompt, inputs []int, summariesEnd int) {}

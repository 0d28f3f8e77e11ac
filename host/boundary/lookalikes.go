package boundary

// lookalikes maps code points to the ASCII they pass for, where compatibility
// decomposition does not already say so. It is written for the eye, as the
// confusables of Unicode Technical Standard 39 are, and covers the letters and
// brackets that markers are made of, capitals and small letters of a script
// apart: a Greek capital nu is an n, a small one a v.
var lookalikes = func() map[rune]string {
	table := make(map[rune]string, 700)
	for _, row := range [...]struct{ ascii, like string }{
		{"a", "аАαΑɑᴀᗅᎪꓮⲀⲁ∀Ʌʌ𐊠λΛдДɐⱥȺ"},
		{"b", "вВьЬЪъβΒʙᏏᏴᗷꓐⲂⲃ฿ɓƄƅБбҍ𐊡"},
		{"c", "сСϲϹᴄꓚⲤⲥᏟͼϾҫҪ¢ʗȼȻƈƇς⊂𐊢"},
		{"d", "ԁԀᴅᎠᗞꓓɖđĐðÐɗƊƉ∂δ"},
		{"e", "еЕεΕєЄэЭᴇꓰᎬⲈⲉɛƐəƏǝƎɘɇɆЗзӠӡΞξΣ∑∈∊€ℇҽҾҿҼ℮𐊆ⴹ"},
		{"f", "ғҒϝϜꓝᖴꜰƒƑẝʃ"},
		{"g", "ɡԍԌɢᏀꓖɠƓǥǤƍց"},
		{"h", "НнһҺΗʜᎻᕼꓧⲎⲏɦђЂћħĦհհңҢ𐋏"},
		{"i", "іІιΙıɪӀӏⲒⲓᎥꓲɩƖɨƗ𐊊"},
		{"j", "јЈϳͿᴊᎫꓙɉɈյʝ"},
		{"k", "кКκΚᴋᏦꓗⲔⲕҝҜқҚƙƘĸҡҠ"},
		{"l", "ʟⳐⳑᏞꓡᒪłŁɭƚȽɫ𐐛"},
		{"m", "мМΜᴍᎷᗰꓟⲘⲙϺϻɱ𐊰"},
		{"n", "ΝɴηпПиИйЙŋŊꓠⲚⲛɲƝƞȠɳռոπΠ"},
		{"o", "оОοΟσᴏօՕ೦໐०௦ꓳⲞⲟөӨθΘøØɵƟѳѲ○◯●ΩωʘⵔҨ𐊒"},
		{"p", "рРρΡᴘᏢꓑⲢⲣϸþÞƿƤƥ𐊕"},
		{"q", "ԛԚʠզϙɋɊ"},
		{"r", "ʀᎡᏒꓣяЯɼɾɍɌгГΓ"},
		{"s", "ѕЅꓢᏕՏꜱʂƧƨȿ"},
		{"t", "тТτΤᴛᎢꓔⲦⲧŧŦƭƬʈƮțҭҬ⊤†☨"},
		{"u", "υᴜՍսꓴʊцЦμɄʉ∪"},
		{"v", "νѵѴᴠᏙꓦ∨ⱱѷ"},
		{"w", "ѡԝԜᴡᎳꓪшШщЩɯաψΨ"},
		{"x", "хХχΧⲬⲭᕁᕽꓫ×ҳҲжЖҖҗ✕✖✗✘⨯╳𐊐᙭"},
		{"y", "уУүҮγϒΥʏᎩꓬⲨⲩўЎұҰɏɎʎ¥ყ"},
		{"z", "ᴢᏃꓜΖζʐƶƵȥȤ"},
		{"ss", "ßẞ"},
		{"ae", "æÆ"},
		{"oe", "œŒ"},

		{"<", "˂ᐸᚲ❮❬❰⧼≺⋖"},
		{">", "˃ᐳ❯❭❱⧽≻⋗"},
		{"<<", "≪⪡"},
		{">>", "≫⪢"},
		{"<<<", "⋘"},
		{">>>", "⋙"},
		{"\x01", "‹〈⟨⦑⧀⊲◀◁◂◄◅⏴⯇"},
		{"\x02", "›〉⟩⦒⧁⊳▶▷▸►▻⏵⯈"},
		{"\x01\x01", "«《⟪"},
		{"\x02\x02", "»》⟫"},
		{"[", "【〔〖〚⟦❲⁅⦋⟬"},
		{"]", "】〕〗〛⟧❳⁆⦌⟭"},
		{"|", "│┃ǀ∣❘❙❚¦׀"},
		{"/", "⁄∕╱⧸⟋᜵〳"},
		{":", "ː˸∶꞉։׃᛬⁝"},

		{" ", "\u2800"},
		{"_", "ˍ▁⎯"},
		{"-", "−➖⁃"},
		{".", "·•∙⋅・‧"},
	} {
		for _, r := range row.like {
			table[r] = row.ascii
		}
	}
	// Letters in filled circles and squares, and those that flags are spelled with.
	for i := range rune(26) {
		letter := string('a' + i)
		table[0x1F150+i] = letter
		table[0x1F170+i] = letter
		table[0x1F1E6+i] = letter
	}
	return table
}()

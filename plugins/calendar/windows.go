package main

// windowsZone returns the IANA name for a zone name of Windows, which Outlook
// and Exchange write as TZID, or "". It is the zone of the territory 001
// (world) in common/supplemental/windowsZones.xml of Unicode CLDR, with two
// names that Windows has retired. A switch costs a fresh instance nothing,
// where a map would be filled at each start.
func windowsZone(name string) string {
	switch name {
	case "AUS Central Standard Time":
		return "Australia/Darwin"
	case "AUS Eastern Standard Time":
		return "Australia/Sydney"
	case "Afghanistan Standard Time":
		return "Asia/Kabul"
	case "Alaskan Standard Time":
		return "America/Anchorage"
	case "Aleutian Standard Time":
		return "America/Adak"
	case "Altai Standard Time":
		return "Asia/Barnaul"
	case "Arab Standard Time":
		return "Asia/Riyadh"
	case "Arabian Standard Time":
		return "Asia/Dubai"
	case "Arabic Standard Time":
		return "Asia/Baghdad"
	case "Argentina Standard Time":
		return "America/Buenos_Aires"
	case "Astrakhan Standard Time":
		return "Europe/Astrakhan"
	case "Atlantic Standard Time":
		return "America/Halifax"
	case "Aus Central W. Standard Time":
		return "Australia/Eucla"
	case "Azerbaijan Standard Time":
		return "Asia/Baku"
	case "Azores Standard Time":
		return "Atlantic/Azores"
	case "Bahia Standard Time":
		return "America/Bahia"
	case "Bangladesh Standard Time":
		return "Asia/Dhaka"
	case "Belarus Standard Time":
		return "Europe/Minsk"
	case "Bougainville Standard Time":
		return "Pacific/Bougainville"
	case "Canada Central Standard Time":
		return "America/Regina"
	case "Cape Verde Standard Time":
		return "Atlantic/Cape_Verde"
	case "Caucasus Standard Time":
		return "Asia/Yerevan"
	case "Cen. Australia Standard Time":
		return "Australia/Adelaide"
	case "Central America Standard Time":
		return "America/Guatemala"
	case "Central Asia Standard Time":
		return "Asia/Bishkek"
	case "Central Brazilian Standard Time":
		return "America/Cuiaba"
	case "Central Europe Standard Time":
		return "Europe/Budapest"
	case "Central European Standard Time":
		return "Europe/Warsaw"
	case "Central Pacific Standard Time":
		return "Pacific/Guadalcanal"
	case "Central Standard Time":
		return "America/Chicago"
	case "Central Standard Time (Mexico)":
		return "America/Mexico_City"
	case "Chatham Islands Standard Time":
		return "Pacific/Chatham"
	case "China Standard Time":
		return "Asia/Shanghai"
	case "Cuba Standard Time":
		return "America/Havana"
	case "Dateline Standard Time":
		return "Etc/GMT+12"
	case "E. Africa Standard Time":
		return "Africa/Nairobi"
	case "E. Australia Standard Time":
		return "Australia/Brisbane"
	case "E. Europe Standard Time":
		return "Europe/Chisinau"
	case "E. South America Standard Time":
		return "America/Sao_Paulo"
	case "Easter Island Standard Time":
		return "Pacific/Easter"
	case "Eastern Standard Time":
		return "America/New_York"
	case "Eastern Standard Time (Mexico)":
		return "America/Cancun"
	case "Egypt Standard Time":
		return "Africa/Cairo"
	case "Ekaterinburg Standard Time":
		return "Asia/Yekaterinburg"
	case "FLE Standard Time":
		return "Europe/Kiev"
	case "Fiji Standard Time":
		return "Pacific/Fiji"
	case "GMT Standard Time":
		return "Europe/London"
	case "GTB Standard Time":
		return "Europe/Bucharest"
	case "Georgian Standard Time":
		return "Asia/Tbilisi"
	case "Greenland Standard Time":
		return "America/Godthab"
	case "Greenwich Standard Time":
		return "Atlantic/Reykjavik"
	case "Haiti Standard Time":
		return "America/Port-au-Prince"
	case "Hawaiian Standard Time":
		return "Pacific/Honolulu"
	case "India Standard Time":
		return "Asia/Calcutta"
	case "Iran Standard Time":
		return "Asia/Tehran"
	case "Israel Standard Time":
		return "Asia/Jerusalem"
	case "Jordan Standard Time":
		return "Asia/Amman"
	case "Kaliningrad Standard Time":
		return "Europe/Kaliningrad"
	case "Kamchatka Standard Time":
		return "Asia/Kamchatka"
	case "Korea Standard Time":
		return "Asia/Seoul"
	case "Libya Standard Time":
		return "Africa/Tripoli"
	case "Line Islands Standard Time":
		return "Pacific/Kiritimati"
	case "Lord Howe Standard Time":
		return "Australia/Lord_Howe"
	case "Magadan Standard Time":
		return "Asia/Magadan"
	case "Magallanes Standard Time":
		return "America/Punta_Arenas"
	case "Marquesas Standard Time":
		return "Pacific/Marquesas"
	case "Mauritius Standard Time":
		return "Indian/Mauritius"
	case "Mid-Atlantic Standard Time":
		return "Atlantic/South_Georgia"
	case "Middle East Standard Time":
		return "Asia/Beirut"
	case "Montevideo Standard Time":
		return "America/Montevideo"
	case "Morocco Standard Time":
		return "Africa/Casablanca"
	case "Mountain Standard Time":
		return "America/Denver"
	case "Mountain Standard Time (Mexico)":
		return "America/Mazatlan"
	case "Myanmar Standard Time":
		return "Asia/Rangoon"
	case "N. Central Asia Standard Time":
		return "Asia/Novosibirsk"
	case "Namibia Standard Time":
		return "Africa/Windhoek"
	case "Nepal Standard Time":
		return "Asia/Katmandu"
	case "New Zealand Standard Time":
		return "Pacific/Auckland"
	case "Newfoundland Standard Time":
		return "America/St_Johns"
	case "Norfolk Standard Time":
		return "Pacific/Norfolk"
	case "North Asia East Standard Time":
		return "Asia/Irkutsk"
	case "North Asia Standard Time":
		return "Asia/Krasnoyarsk"
	case "North Korea Standard Time":
		return "Asia/Pyongyang"
	case "Omsk Standard Time":
		return "Asia/Omsk"
	case "Pacific SA Standard Time":
		return "America/Santiago"
	case "Pacific Standard Time":
		return "America/Los_Angeles"
	case "Pacific Standard Time (Mexico)":
		return "America/Tijuana"
	case "Pakistan Standard Time":
		return "Asia/Karachi"
	case "Paraguay Standard Time":
		return "America/Asuncion"
	case "Qyzylorda Standard Time":
		return "Asia/Qyzylorda"
	case "Romance Standard Time":
		return "Europe/Paris"
	case "Russia Time Zone 10":
		return "Asia/Srednekolymsk"
	case "Russia Time Zone 11":
		return "Asia/Kamchatka"
	case "Russia Time Zone 3":
		return "Europe/Samara"
	case "Russian Standard Time":
		return "Europe/Moscow"
	case "SA Eastern Standard Time":
		return "America/Cayenne"
	case "SA Pacific Standard Time":
		return "America/Bogota"
	case "SA Western Standard Time":
		return "America/La_Paz"
	case "SE Asia Standard Time":
		return "Asia/Bangkok"
	case "Saint Pierre Standard Time":
		return "America/Miquelon"
	case "Sakhalin Standard Time":
		return "Asia/Sakhalin"
	case "Samoa Standard Time":
		return "Pacific/Apia"
	case "Sao Tome Standard Time":
		return "Africa/Sao_Tome"
	case "Saratov Standard Time":
		return "Europe/Saratov"
	case "Singapore Standard Time":
		return "Asia/Singapore"
	case "South Africa Standard Time":
		return "Africa/Johannesburg"
	case "South Sudan Standard Time":
		return "Africa/Juba"
	case "Sri Lanka Standard Time":
		return "Asia/Colombo"
	case "Sudan Standard Time":
		return "Africa/Khartoum"
	case "Syria Standard Time":
		return "Asia/Damascus"
	case "Taipei Standard Time":
		return "Asia/Taipei"
	case "Tasmania Standard Time":
		return "Australia/Hobart"
	case "Tocantins Standard Time":
		return "America/Araguaina"
	case "Tokyo Standard Time":
		return "Asia/Tokyo"
	case "Tomsk Standard Time":
		return "Asia/Tomsk"
	case "Tonga Standard Time":
		return "Pacific/Tongatapu"
	case "Transbaikal Standard Time":
		return "Asia/Chita"
	case "Turkey Standard Time":
		return "Europe/Istanbul"
	case "Turks And Caicos Standard Time":
		return "America/Grand_Turk"
	case "US Eastern Standard Time":
		return "America/Indianapolis"
	case "US Mountain Standard Time":
		return "America/Phoenix"
	case "UTC":
		return "Etc/UTC"
	case "UTC+12":
		return "Etc/GMT-12"
	case "UTC+13":
		return "Etc/GMT-13"
	case "UTC-02":
		return "Etc/GMT+2"
	case "UTC-08":
		return "Etc/GMT+8"
	case "UTC-09":
		return "Etc/GMT+9"
	case "UTC-11":
		return "Etc/GMT+11"
	case "Ulaanbaatar Standard Time":
		return "Asia/Ulaanbaatar"
	case "Venezuela Standard Time":
		return "America/Caracas"
	case "Vladivostok Standard Time":
		return "Asia/Vladivostok"
	case "Volgograd Standard Time":
		return "Europe/Volgograd"
	case "W. Australia Standard Time":
		return "Australia/Perth"
	case "W. Central Africa Standard Time":
		return "Africa/Lagos"
	case "W. Europe Standard Time":
		return "Europe/Berlin"
	case "W. Mongolia Standard Time":
		return "Asia/Hovd"
	case "West Asia Standard Time":
		return "Asia/Tashkent"
	case "West Bank Standard Time":
		return "Asia/Hebron"
	case "West Pacific Standard Time":
		return "Pacific/Port_Moresby"
	case "Yakutsk Standard Time":
		return "Asia/Yakutsk"
	case "Yukon Standard Time":
		return "America/Whitehorse"
	}
	return ""
}

;; Recursion that keeps 250 values on the operand stack instead of in locals across each call.
;; Runs into: the call stack.
;; Ends as: stack overflow.
(module
  (memory 1)
  (func $f (param i32) (result i64)
    (i64.load offset=0 (local.get 0))
    (i64.load offset=8 (local.get 0))
    (i64.load offset=16 (local.get 0))
    (i64.load offset=24 (local.get 0))
    (i64.load offset=32 (local.get 0))
    (i64.load offset=40 (local.get 0))
    (i64.load offset=48 (local.get 0))
    (i64.load offset=56 (local.get 0))
    (i64.load offset=64 (local.get 0))
    (i64.load offset=72 (local.get 0))
    (i64.load offset=80 (local.get 0))
    (i64.load offset=88 (local.get 0))
    (i64.load offset=96 (local.get 0))
    (i64.load offset=104 (local.get 0))
    (i64.load offset=112 (local.get 0))
    (i64.load offset=120 (local.get 0))
    (i64.load offset=128 (local.get 0))
    (i64.load offset=136 (local.get 0))
    (i64.load offset=144 (local.get 0))
    (i64.load offset=152 (local.get 0))
    (i64.load offset=160 (local.get 0))
    (i64.load offset=168 (local.get 0))
    (i64.load offset=176 (local.get 0))
    (i64.load offset=184 (local.get 0))
    (i64.load offset=192 (local.get 0))
    (i64.load offset=200 (local.get 0))
    (i64.load offset=208 (local.get 0))
    (i64.load offset=216 (local.get 0))
    (i64.load offset=224 (local.get 0))
    (i64.load offset=232 (local.get 0))
    (i64.load offset=240 (local.get 0))
    (i64.load offset=248 (local.get 0))
    (i64.load offset=256 (local.get 0))
    (i64.load offset=264 (local.get 0))
    (i64.load offset=272 (local.get 0))
    (i64.load offset=280 (local.get 0))
    (i64.load offset=288 (local.get 0))
    (i64.load offset=296 (local.get 0))
    (i64.load offset=304 (local.get 0))
    (i64.load offset=312 (local.get 0))
    (i64.load offset=320 (local.get 0))
    (i64.load offset=328 (local.get 0))
    (i64.load offset=336 (local.get 0))
    (i64.load offset=344 (local.get 0))
    (i64.load offset=352 (local.get 0))
    (i64.load offset=360 (local.get 0))
    (i64.load offset=368 (local.get 0))
    (i64.load offset=376 (local.get 0))
    (i64.load offset=384 (local.get 0))
    (i64.load offset=392 (local.get 0))
    (i64.load offset=400 (local.get 0))
    (i64.load offset=408 (local.get 0))
    (i64.load offset=416 (local.get 0))
    (i64.load offset=424 (local.get 0))
    (i64.load offset=432 (local.get 0))
    (i64.load offset=440 (local.get 0))
    (i64.load offset=448 (local.get 0))
    (i64.load offset=456 (local.get 0))
    (i64.load offset=464 (local.get 0))
    (i64.load offset=472 (local.get 0))
    (i64.load offset=480 (local.get 0))
    (i64.load offset=488 (local.get 0))
    (i64.load offset=496 (local.get 0))
    (i64.load offset=504 (local.get 0))
    (i64.load offset=512 (local.get 0))
    (i64.load offset=520 (local.get 0))
    (i64.load offset=528 (local.get 0))
    (i64.load offset=536 (local.get 0))
    (i64.load offset=544 (local.get 0))
    (i64.load offset=552 (local.get 0))
    (i64.load offset=560 (local.get 0))
    (i64.load offset=568 (local.get 0))
    (i64.load offset=576 (local.get 0))
    (i64.load offset=584 (local.get 0))
    (i64.load offset=592 (local.get 0))
    (i64.load offset=600 (local.get 0))
    (i64.load offset=608 (local.get 0))
    (i64.load offset=616 (local.get 0))
    (i64.load offset=624 (local.get 0))
    (i64.load offset=632 (local.get 0))
    (i64.load offset=640 (local.get 0))
    (i64.load offset=648 (local.get 0))
    (i64.load offset=656 (local.get 0))
    (i64.load offset=664 (local.get 0))
    (i64.load offset=672 (local.get 0))
    (i64.load offset=680 (local.get 0))
    (i64.load offset=688 (local.get 0))
    (i64.load offset=696 (local.get 0))
    (i64.load offset=704 (local.get 0))
    (i64.load offset=712 (local.get 0))
    (i64.load offset=720 (local.get 0))
    (i64.load offset=728 (local.get 0))
    (i64.load offset=736 (local.get 0))
    (i64.load offset=744 (local.get 0))
    (i64.load offset=752 (local.get 0))
    (i64.load offset=760 (local.get 0))
    (i64.load offset=768 (local.get 0))
    (i64.load offset=776 (local.get 0))
    (i64.load offset=784 (local.get 0))
    (i64.load offset=792 (local.get 0))
    (i64.load offset=800 (local.get 0))
    (i64.load offset=808 (local.get 0))
    (i64.load offset=816 (local.get 0))
    (i64.load offset=824 (local.get 0))
    (i64.load offset=832 (local.get 0))
    (i64.load offset=840 (local.get 0))
    (i64.load offset=848 (local.get 0))
    (i64.load offset=856 (local.get 0))
    (i64.load offset=864 (local.get 0))
    (i64.load offset=872 (local.get 0))
    (i64.load offset=880 (local.get 0))
    (i64.load offset=888 (local.get 0))
    (i64.load offset=896 (local.get 0))
    (i64.load offset=904 (local.get 0))
    (i64.load offset=912 (local.get 0))
    (i64.load offset=920 (local.get 0))
    (i64.load offset=928 (local.get 0))
    (i64.load offset=936 (local.get 0))
    (i64.load offset=944 (local.get 0))
    (i64.load offset=952 (local.get 0))
    (i64.load offset=960 (local.get 0))
    (i64.load offset=968 (local.get 0))
    (i64.load offset=976 (local.get 0))
    (i64.load offset=984 (local.get 0))
    (i64.load offset=992 (local.get 0))
    (i64.load offset=1000 (local.get 0))
    (i64.load offset=1008 (local.get 0))
    (i64.load offset=1016 (local.get 0))
    (i64.load offset=1024 (local.get 0))
    (i64.load offset=1032 (local.get 0))
    (i64.load offset=1040 (local.get 0))
    (i64.load offset=1048 (local.get 0))
    (i64.load offset=1056 (local.get 0))
    (i64.load offset=1064 (local.get 0))
    (i64.load offset=1072 (local.get 0))
    (i64.load offset=1080 (local.get 0))
    (i64.load offset=1088 (local.get 0))
    (i64.load offset=1096 (local.get 0))
    (i64.load offset=1104 (local.get 0))
    (i64.load offset=1112 (local.get 0))
    (i64.load offset=1120 (local.get 0))
    (i64.load offset=1128 (local.get 0))
    (i64.load offset=1136 (local.get 0))
    (i64.load offset=1144 (local.get 0))
    (i64.load offset=1152 (local.get 0))
    (i64.load offset=1160 (local.get 0))
    (i64.load offset=1168 (local.get 0))
    (i64.load offset=1176 (local.get 0))
    (i64.load offset=1184 (local.get 0))
    (i64.load offset=1192 (local.get 0))
    (i64.load offset=1200 (local.get 0))
    (i64.load offset=1208 (local.get 0))
    (i64.load offset=1216 (local.get 0))
    (i64.load offset=1224 (local.get 0))
    (i64.load offset=1232 (local.get 0))
    (i64.load offset=1240 (local.get 0))
    (i64.load offset=1248 (local.get 0))
    (i64.load offset=1256 (local.get 0))
    (i64.load offset=1264 (local.get 0))
    (i64.load offset=1272 (local.get 0))
    (i64.load offset=1280 (local.get 0))
    (i64.load offset=1288 (local.get 0))
    (i64.load offset=1296 (local.get 0))
    (i64.load offset=1304 (local.get 0))
    (i64.load offset=1312 (local.get 0))
    (i64.load offset=1320 (local.get 0))
    (i64.load offset=1328 (local.get 0))
    (i64.load offset=1336 (local.get 0))
    (i64.load offset=1344 (local.get 0))
    (i64.load offset=1352 (local.get 0))
    (i64.load offset=1360 (local.get 0))
    (i64.load offset=1368 (local.get 0))
    (i64.load offset=1376 (local.get 0))
    (i64.load offset=1384 (local.get 0))
    (i64.load offset=1392 (local.get 0))
    (i64.load offset=1400 (local.get 0))
    (i64.load offset=1408 (local.get 0))
    (i64.load offset=1416 (local.get 0))
    (i64.load offset=1424 (local.get 0))
    (i64.load offset=1432 (local.get 0))
    (i64.load offset=1440 (local.get 0))
    (i64.load offset=1448 (local.get 0))
    (i64.load offset=1456 (local.get 0))
    (i64.load offset=1464 (local.get 0))
    (i64.load offset=1472 (local.get 0))
    (i64.load offset=1480 (local.get 0))
    (i64.load offset=1488 (local.get 0))
    (i64.load offset=1496 (local.get 0))
    (i64.load offset=1504 (local.get 0))
    (i64.load offset=1512 (local.get 0))
    (i64.load offset=1520 (local.get 0))
    (i64.load offset=1528 (local.get 0))
    (i64.load offset=1536 (local.get 0))
    (i64.load offset=1544 (local.get 0))
    (i64.load offset=1552 (local.get 0))
    (i64.load offset=1560 (local.get 0))
    (i64.load offset=1568 (local.get 0))
    (i64.load offset=1576 (local.get 0))
    (i64.load offset=1584 (local.get 0))
    (i64.load offset=1592 (local.get 0))
    (i64.load offset=1600 (local.get 0))
    (i64.load offset=1608 (local.get 0))
    (i64.load offset=1616 (local.get 0))
    (i64.load offset=1624 (local.get 0))
    (i64.load offset=1632 (local.get 0))
    (i64.load offset=1640 (local.get 0))
    (i64.load offset=1648 (local.get 0))
    (i64.load offset=1656 (local.get 0))
    (i64.load offset=1664 (local.get 0))
    (i64.load offset=1672 (local.get 0))
    (i64.load offset=1680 (local.get 0))
    (i64.load offset=1688 (local.get 0))
    (i64.load offset=1696 (local.get 0))
    (i64.load offset=1704 (local.get 0))
    (i64.load offset=1712 (local.get 0))
    (i64.load offset=1720 (local.get 0))
    (i64.load offset=1728 (local.get 0))
    (i64.load offset=1736 (local.get 0))
    (i64.load offset=1744 (local.get 0))
    (i64.load offset=1752 (local.get 0))
    (i64.load offset=1760 (local.get 0))
    (i64.load offset=1768 (local.get 0))
    (i64.load offset=1776 (local.get 0))
    (i64.load offset=1784 (local.get 0))
    (i64.load offset=1792 (local.get 0))
    (i64.load offset=1800 (local.get 0))
    (i64.load offset=1808 (local.get 0))
    (i64.load offset=1816 (local.get 0))
    (i64.load offset=1824 (local.get 0))
    (i64.load offset=1832 (local.get 0))
    (i64.load offset=1840 (local.get 0))
    (i64.load offset=1848 (local.get 0))
    (i64.load offset=1856 (local.get 0))
    (i64.load offset=1864 (local.get 0))
    (i64.load offset=1872 (local.get 0))
    (i64.load offset=1880 (local.get 0))
    (i64.load offset=1888 (local.get 0))
    (i64.load offset=1896 (local.get 0))
    (i64.load offset=1904 (local.get 0))
    (i64.load offset=1912 (local.get 0))
    (i64.load offset=1920 (local.get 0))
    (i64.load offset=1928 (local.get 0))
    (i64.load offset=1936 (local.get 0))
    (i64.load offset=1944 (local.get 0))
    (i64.load offset=1952 (local.get 0))
    (i64.load offset=1960 (local.get 0))
    (i64.load offset=1968 (local.get 0))
    (i64.load offset=1976 (local.get 0))
    (i64.load offset=1984 (local.get 0))
    (i64.load offset=1992 (local.get 0))
    (call $f (local.get 0))
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
    i64.add
  )
  (func (export "glovebox_query_v1") (result i32) (i32.wrap_i64 (call $f (i32.const 0)))))

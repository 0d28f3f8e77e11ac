;; Recursion that keeps 250 vectors of 128 bits across each call.
;; Runs into: the call stack.
;; Ends as: stack overflow.
(module
  (memory 1)
  (func $f (param i32) (result v128)
    (v128.load offset=0 (local.get 0))
    (v128.load offset=16 (local.get 0))
    (v128.load offset=32 (local.get 0))
    (v128.load offset=48 (local.get 0))
    (v128.load offset=64 (local.get 0))
    (v128.load offset=80 (local.get 0))
    (v128.load offset=96 (local.get 0))
    (v128.load offset=112 (local.get 0))
    (v128.load offset=128 (local.get 0))
    (v128.load offset=144 (local.get 0))
    (v128.load offset=160 (local.get 0))
    (v128.load offset=176 (local.get 0))
    (v128.load offset=192 (local.get 0))
    (v128.load offset=208 (local.get 0))
    (v128.load offset=224 (local.get 0))
    (v128.load offset=240 (local.get 0))
    (v128.load offset=256 (local.get 0))
    (v128.load offset=272 (local.get 0))
    (v128.load offset=288 (local.get 0))
    (v128.load offset=304 (local.get 0))
    (v128.load offset=320 (local.get 0))
    (v128.load offset=336 (local.get 0))
    (v128.load offset=352 (local.get 0))
    (v128.load offset=368 (local.get 0))
    (v128.load offset=384 (local.get 0))
    (v128.load offset=400 (local.get 0))
    (v128.load offset=416 (local.get 0))
    (v128.load offset=432 (local.get 0))
    (v128.load offset=448 (local.get 0))
    (v128.load offset=464 (local.get 0))
    (v128.load offset=480 (local.get 0))
    (v128.load offset=496 (local.get 0))
    (v128.load offset=512 (local.get 0))
    (v128.load offset=528 (local.get 0))
    (v128.load offset=544 (local.get 0))
    (v128.load offset=560 (local.get 0))
    (v128.load offset=576 (local.get 0))
    (v128.load offset=592 (local.get 0))
    (v128.load offset=608 (local.get 0))
    (v128.load offset=624 (local.get 0))
    (v128.load offset=640 (local.get 0))
    (v128.load offset=656 (local.get 0))
    (v128.load offset=672 (local.get 0))
    (v128.load offset=688 (local.get 0))
    (v128.load offset=704 (local.get 0))
    (v128.load offset=720 (local.get 0))
    (v128.load offset=736 (local.get 0))
    (v128.load offset=752 (local.get 0))
    (v128.load offset=768 (local.get 0))
    (v128.load offset=784 (local.get 0))
    (v128.load offset=800 (local.get 0))
    (v128.load offset=816 (local.get 0))
    (v128.load offset=832 (local.get 0))
    (v128.load offset=848 (local.get 0))
    (v128.load offset=864 (local.get 0))
    (v128.load offset=880 (local.get 0))
    (v128.load offset=896 (local.get 0))
    (v128.load offset=912 (local.get 0))
    (v128.load offset=928 (local.get 0))
    (v128.load offset=944 (local.get 0))
    (v128.load offset=960 (local.get 0))
    (v128.load offset=976 (local.get 0))
    (v128.load offset=992 (local.get 0))
    (v128.load offset=1008 (local.get 0))
    (v128.load offset=1024 (local.get 0))
    (v128.load offset=1040 (local.get 0))
    (v128.load offset=1056 (local.get 0))
    (v128.load offset=1072 (local.get 0))
    (v128.load offset=1088 (local.get 0))
    (v128.load offset=1104 (local.get 0))
    (v128.load offset=1120 (local.get 0))
    (v128.load offset=1136 (local.get 0))
    (v128.load offset=1152 (local.get 0))
    (v128.load offset=1168 (local.get 0))
    (v128.load offset=1184 (local.get 0))
    (v128.load offset=1200 (local.get 0))
    (v128.load offset=1216 (local.get 0))
    (v128.load offset=1232 (local.get 0))
    (v128.load offset=1248 (local.get 0))
    (v128.load offset=1264 (local.get 0))
    (v128.load offset=1280 (local.get 0))
    (v128.load offset=1296 (local.get 0))
    (v128.load offset=1312 (local.get 0))
    (v128.load offset=1328 (local.get 0))
    (v128.load offset=1344 (local.get 0))
    (v128.load offset=1360 (local.get 0))
    (v128.load offset=1376 (local.get 0))
    (v128.load offset=1392 (local.get 0))
    (v128.load offset=1408 (local.get 0))
    (v128.load offset=1424 (local.get 0))
    (v128.load offset=1440 (local.get 0))
    (v128.load offset=1456 (local.get 0))
    (v128.load offset=1472 (local.get 0))
    (v128.load offset=1488 (local.get 0))
    (v128.load offset=1504 (local.get 0))
    (v128.load offset=1520 (local.get 0))
    (v128.load offset=1536 (local.get 0))
    (v128.load offset=1552 (local.get 0))
    (v128.load offset=1568 (local.get 0))
    (v128.load offset=1584 (local.get 0))
    (v128.load offset=1600 (local.get 0))
    (v128.load offset=1616 (local.get 0))
    (v128.load offset=1632 (local.get 0))
    (v128.load offset=1648 (local.get 0))
    (v128.load offset=1664 (local.get 0))
    (v128.load offset=1680 (local.get 0))
    (v128.load offset=1696 (local.get 0))
    (v128.load offset=1712 (local.get 0))
    (v128.load offset=1728 (local.get 0))
    (v128.load offset=1744 (local.get 0))
    (v128.load offset=1760 (local.get 0))
    (v128.load offset=1776 (local.get 0))
    (v128.load offset=1792 (local.get 0))
    (v128.load offset=1808 (local.get 0))
    (v128.load offset=1824 (local.get 0))
    (v128.load offset=1840 (local.get 0))
    (v128.load offset=1856 (local.get 0))
    (v128.load offset=1872 (local.get 0))
    (v128.load offset=1888 (local.get 0))
    (v128.load offset=1904 (local.get 0))
    (v128.load offset=1920 (local.get 0))
    (v128.load offset=1936 (local.get 0))
    (v128.load offset=1952 (local.get 0))
    (v128.load offset=1968 (local.get 0))
    (v128.load offset=1984 (local.get 0))
    (v128.load offset=2000 (local.get 0))
    (v128.load offset=2016 (local.get 0))
    (v128.load offset=2032 (local.get 0))
    (v128.load offset=2048 (local.get 0))
    (v128.load offset=2064 (local.get 0))
    (v128.load offset=2080 (local.get 0))
    (v128.load offset=2096 (local.get 0))
    (v128.load offset=2112 (local.get 0))
    (v128.load offset=2128 (local.get 0))
    (v128.load offset=2144 (local.get 0))
    (v128.load offset=2160 (local.get 0))
    (v128.load offset=2176 (local.get 0))
    (v128.load offset=2192 (local.get 0))
    (v128.load offset=2208 (local.get 0))
    (v128.load offset=2224 (local.get 0))
    (v128.load offset=2240 (local.get 0))
    (v128.load offset=2256 (local.get 0))
    (v128.load offset=2272 (local.get 0))
    (v128.load offset=2288 (local.get 0))
    (v128.load offset=2304 (local.get 0))
    (v128.load offset=2320 (local.get 0))
    (v128.load offset=2336 (local.get 0))
    (v128.load offset=2352 (local.get 0))
    (v128.load offset=2368 (local.get 0))
    (v128.load offset=2384 (local.get 0))
    (v128.load offset=2400 (local.get 0))
    (v128.load offset=2416 (local.get 0))
    (v128.load offset=2432 (local.get 0))
    (v128.load offset=2448 (local.get 0))
    (v128.load offset=2464 (local.get 0))
    (v128.load offset=2480 (local.get 0))
    (v128.load offset=2496 (local.get 0))
    (v128.load offset=2512 (local.get 0))
    (v128.load offset=2528 (local.get 0))
    (v128.load offset=2544 (local.get 0))
    (v128.load offset=2560 (local.get 0))
    (v128.load offset=2576 (local.get 0))
    (v128.load offset=2592 (local.get 0))
    (v128.load offset=2608 (local.get 0))
    (v128.load offset=2624 (local.get 0))
    (v128.load offset=2640 (local.get 0))
    (v128.load offset=2656 (local.get 0))
    (v128.load offset=2672 (local.get 0))
    (v128.load offset=2688 (local.get 0))
    (v128.load offset=2704 (local.get 0))
    (v128.load offset=2720 (local.get 0))
    (v128.load offset=2736 (local.get 0))
    (v128.load offset=2752 (local.get 0))
    (v128.load offset=2768 (local.get 0))
    (v128.load offset=2784 (local.get 0))
    (v128.load offset=2800 (local.get 0))
    (v128.load offset=2816 (local.get 0))
    (v128.load offset=2832 (local.get 0))
    (v128.load offset=2848 (local.get 0))
    (v128.load offset=2864 (local.get 0))
    (v128.load offset=2880 (local.get 0))
    (v128.load offset=2896 (local.get 0))
    (v128.load offset=2912 (local.get 0))
    (v128.load offset=2928 (local.get 0))
    (v128.load offset=2944 (local.get 0))
    (v128.load offset=2960 (local.get 0))
    (v128.load offset=2976 (local.get 0))
    (v128.load offset=2992 (local.get 0))
    (v128.load offset=3008 (local.get 0))
    (v128.load offset=3024 (local.get 0))
    (v128.load offset=3040 (local.get 0))
    (v128.load offset=3056 (local.get 0))
    (v128.load offset=3072 (local.get 0))
    (v128.load offset=3088 (local.get 0))
    (v128.load offset=3104 (local.get 0))
    (v128.load offset=3120 (local.get 0))
    (v128.load offset=3136 (local.get 0))
    (v128.load offset=3152 (local.get 0))
    (v128.load offset=3168 (local.get 0))
    (v128.load offset=3184 (local.get 0))
    (v128.load offset=3200 (local.get 0))
    (v128.load offset=3216 (local.get 0))
    (v128.load offset=3232 (local.get 0))
    (v128.load offset=3248 (local.get 0))
    (v128.load offset=3264 (local.get 0))
    (v128.load offset=3280 (local.get 0))
    (v128.load offset=3296 (local.get 0))
    (v128.load offset=3312 (local.get 0))
    (v128.load offset=3328 (local.get 0))
    (v128.load offset=3344 (local.get 0))
    (v128.load offset=3360 (local.get 0))
    (v128.load offset=3376 (local.get 0))
    (v128.load offset=3392 (local.get 0))
    (v128.load offset=3408 (local.get 0))
    (v128.load offset=3424 (local.get 0))
    (v128.load offset=3440 (local.get 0))
    (v128.load offset=3456 (local.get 0))
    (v128.load offset=3472 (local.get 0))
    (v128.load offset=3488 (local.get 0))
    (v128.load offset=3504 (local.get 0))
    (v128.load offset=3520 (local.get 0))
    (v128.load offset=3536 (local.get 0))
    (v128.load offset=3552 (local.get 0))
    (v128.load offset=3568 (local.get 0))
    (v128.load offset=3584 (local.get 0))
    (v128.load offset=3600 (local.get 0))
    (v128.load offset=3616 (local.get 0))
    (v128.load offset=3632 (local.get 0))
    (v128.load offset=3648 (local.get 0))
    (v128.load offset=3664 (local.get 0))
    (v128.load offset=3680 (local.get 0))
    (v128.load offset=3696 (local.get 0))
    (v128.load offset=3712 (local.get 0))
    (v128.load offset=3728 (local.get 0))
    (v128.load offset=3744 (local.get 0))
    (v128.load offset=3760 (local.get 0))
    (v128.load offset=3776 (local.get 0))
    (v128.load offset=3792 (local.get 0))
    (v128.load offset=3808 (local.get 0))
    (v128.load offset=3824 (local.get 0))
    (v128.load offset=3840 (local.get 0))
    (v128.load offset=3856 (local.get 0))
    (v128.load offset=3872 (local.get 0))
    (v128.load offset=3888 (local.get 0))
    (v128.load offset=3904 (local.get 0))
    (v128.load offset=3920 (local.get 0))
    (v128.load offset=3936 (local.get 0))
    (v128.load offset=3952 (local.get 0))
    (v128.load offset=3968 (local.get 0))
    (v128.load offset=3984 (local.get 0))
    (call $f (local.get 0))
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
    i64x2.add
  )
  (func (export "glovebox_query_v1") (result i32) (i32x4.extract_lane 0 (call $f (i32.const 0)))))

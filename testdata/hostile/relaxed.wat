;; Uses an instruction of relaxed vectors, whose results differ between processors.
;; Runs into: the features that hands can use.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --enable-relaxed-simd
(module
  (func (export "glovebox_query_v1") (result i32) (i32x4.extract_lane 0 (f32x4.relaxed_madd (v128.const i32x4 0 0 0 0) (v128.const i32x4 0 0 0 0) (v128.const i32x4 0 0 0 0)))))

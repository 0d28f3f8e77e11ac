import { Query, register, warm } from "@gloveboxhq/hand";

const squares: i32[] = [];

function build(): void {
  if (squares.length > 0) return;
  for (let i = 0; i < 1000; i++) squares.push(i * i);
}

let prepared = false;

warm((): void => {
  build();
  prepared = true;
});

register((q: Query): string => {
  build();
  return `${squares[q.prompt.length]} ${prepared}`;
});

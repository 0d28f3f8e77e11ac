import { Query, register, warm } from "@gloveboxhq/hand";

warm((): void => {
  throw new Error("no table");
});
register((q: Query): string => q.prompt);

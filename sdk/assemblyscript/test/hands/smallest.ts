import { Query, register } from "@gloveboxhq/hand";

register((q: Query): string => q.prompt);

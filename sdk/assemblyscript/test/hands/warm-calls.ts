import { Query, log, register, warm } from "@gloveboxhq/hand";

warm((): void => log.info("warm"));
register((q: Query): string => q.prompt);

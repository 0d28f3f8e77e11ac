// A hand in JavaScript: answer gets the query, the JSON object of abi/ABI.md §3, and
// returns the reply. What it throws is the failure. It is a script, not a module; a
// bundler makes one of several files.
const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

function answer(query) {
  if (query.prompt === "") {
    return ""; // nothing to say
  }
  const now = new Date(query.now);
  return `You asked: ${query.prompt}\nIt is ${weekdays[now.getUTCDay()]} ${now.toISOString().slice(11, 16)} in UTC.`;
}

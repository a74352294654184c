// Asks a running endpoint through Go's drivers: pgx (which Grafana uses) over both protocols, and lib/pq.
// With a file of statements, a JSON string a line, it sends these through pgx alone.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
)

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(what string, holds bool) {
	if !holds {
		fmt.Fprintf(os.Stderr, "%s: not as expected\n", what)
		os.Exit(1)
	}
}

// Sends each statement over both protocols.
func replay(ctx context.Context, conn *pgx.Conn, path string) {
	file, err := os.Open(path)
	check("statements", err)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var statement string
		check("statements", json.Unmarshal(lines.Bytes(), &statement))
		simple, err := conn.PgConn().Exec(ctx, statement).ReadAll()
		check(statement, err)
		rows, err := conn.Query(ctx, statement, pgx.QueryExecModeExec)
		check(statement, err)
		found := 0
		for rows.Next() {
			_, err := rows.Values()
			check(statement, err)
			found++
		}
		check(statement, rows.Err())
		expect("as many rows over both protocols: "+statement, len(simple) == 1 && len(simple[0].Rows) == found)
	}
	check("statements", lines.Err())
	expect("some statements", n > 0)
	fmt.Printf("pgx: %d statements passed\n", n)
}

func main() {
	dsn, ctx := os.Args[1], context.Background()

	conn, err := pgx.Connect(ctx, dsn)
	check("pgx connects", err)
	check("pgx pings", conn.Ping(ctx))
	if len(os.Args) > 2 {
		replay(ctx, conn, os.Args[2])
		return
	}
	var tasks, found int64
	var first time.Time
	check("pgx asks", conn.QueryRow(ctx, `SELECT COUNT(*), MIN(start) FROM tasks`).Scan(&tasks, &first))
	expect("tasks", tasks > 0 && first.Year() > 2000)
	check("pgx asks with values", conn.QueryRow(ctx, `SELECT COUNT(*) FROM tasks WHERE start >= $1 AND handoffs >= $2`, first, int64(0)).Scan(&found))
	expect("all tasks", found == tasks)
	var agents []string
	check("pgx reads lists", conn.QueryRow(ctx, `SELECT agents FROM tasks WHERE handoffs > 0 LIMIT 1`).Scan(&agents))
	expect("agents", len(agents) > 0)
	// As Grafana asks: one message, answers as text.
	results, err := conn.PgConn().Exec(ctx, `SELECT floor(extract(epoch from "time")/300)*300 AS "time", to_agent AS metric, 1 AS value FROM handoffs ORDER BY 1`).ReadAll()
	check("simple protocol", err)
	expect("tag", len(results) == 1 && results[0].CommandTag.Select() && int(results[0].CommandTag.RowsAffected()) == len(results[0].Rows))
	_, err = conn.Exec(ctx, `DROP TABLE tasks`)
	expect("writing is refused", err != nil)
	limited, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	_, err = conn.Exec(limited, `SELECT SUM(a.value * b.value) FROM generate_series(1, 10000000) a, generate_series(1, 1000000) b`)
	expect("a deadline ends a statement", err != nil)

	db, err := sql.Open("postgres", dsn)
	check("lib/pq opens", err)
	check("lib/pq pings", db.Ping())
	check("lib/pq asks", db.QueryRow(`SELECT COUNT(*) FROM tasks WHERE start >= $1`, first).Scan(&found))
	expect("all tasks", found == tasks)
	prepared, err := db.Prepare(`SELECT to_agent FROM handoffs WHERE task_id = $1`)
	check("lib/pq prepares", err)
	rows, err := prepared.Query("none")
	check("lib/pq asks again", err)
	expect("no rows", !rows.Next())
	fmt.Println("pgx and lib/pq: passed")
}

import java.sql.DriverManager;
import java.util.ArrayList;
import java.util.List;

/** Asks a running endpoint through JDBC, as DBeaver and Metabase do. */
public class Jdbc {
    static void expect(String what, boolean holds) {
        if (!holds) {
            System.err.println(what + ": not as expected");
            System.exit(1);
        }
    }

    public static void main(String[] args) throws Exception {
        try (var db = DriverManager.getConnection(args[0], args[1], args[2])) {
            var about = db.getMetaData();
            expect("version", about.getDatabaseMajorVersion() >= 14);
            List<String> tables = new ArrayList<>();
            try (var r = about.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"})) {
                while (r.next()) tables.add(r.getString("TABLE_NAME"));
            }
            expect("tables " + tables, tables.contains("handoffs") && tables.contains("measure_sums"));
            List<String> columns = new ArrayList<>();
            try (var r = about.getColumns(null, "public", "handoffs", "%")) {
                while (r.next()) columns.add(r.getString("COLUMN_NAME") + ":" + r.getString("TYPE_NAME"));
            }
            expect("columns " + columns, columns.contains("time:timestamptz") && columns.contains("seq:int8"));
            try (var r = about.getSchemas()) {
                boolean found = false;
                while (r.next()) found |= "public".equals(r.getString("TABLE_SCHEM"));
                expect("schema", found);
            }
            try (var s = db.prepareStatement("SELECT task_id, start, completed, agents FROM tasks WHERE handoffs >= ?")) {
                s.setLong(1, 0);
                // Often enough for the driver to prepare it at the server.
                for (int i = 0; i < 8; i++) {
                    try (var r = s.executeQuery()) {
                        expect("a task", r.next() && r.getTimestamp(2) != null && r.getArray(4) != null);
                    }
                }
            }
            db.setAutoCommit(false);
            try (var s = db.createStatement()) {
                s.setFetchSize(2);
                int n = 0;
                try (var r = s.executeQuery("SELECT task_id FROM tasks")) {
                    while (r.next()) n++;
                }
                expect("rows in parts", n > 2);
            }
            db.rollback();
            try (var s = db.createStatement()) {
                s.execute("DELETE FROM tasks");
                expect("writing is refused", false);
            } catch (java.sql.SQLException e) {
                expect("code " + e.getSQLState(), "25006".equals(e.getSQLState()));
            }
            db.rollback();
            System.out.println("JDBC: passed");
        }
    }
}

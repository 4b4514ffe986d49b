import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLIntegrityConstraintViolationException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** A bank over JDBC, as an application uses it: server-side prepared statements, batches, generated keys, savepoints, streams, threads. */
public class Bank {
    static final int ACCOUNTS = 50, THREADS = 4, TRANSFERS = 200;
    static String url;

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static Connection connect() throws SQLException {
        Connection connection = DriverManager.getConnection(url + "&useServerPrepStmts=true&rewriteBatchedStatements=false");
        connection.setAutoCommit(false);
        return connection;
    }

    public static void main(String[] arguments) throws Exception {
        String server = System.getProperty("server"), engine = System.getProperty("engine", "Terrace");
        try (Connection connection = DriverManager.getConnection("jdbc:mariadb://" + server + "/?user=root");
                Statement statement = connection.createStatement()) {
            statement.execute("DROP DATABASE IF EXISTS bank");
            statement.execute("CREATE DATABASE bank CHARACTER SET utf8mb4");
        }
        url = "jdbc:mariadb://" + server + "/bank?user=root";
        try (Connection connection = connect()) {
            schema(connection, engine);
            keys(connection);
            values(connection);
            savepoints(connection);
            streams(connection);
            metadata(connection, engine);
        }
        transfers();
        System.out.println("JDBC: all well on " + engine);
    }

    static void schema(Connection connection, String engine) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE account (id INT AUTO_INCREMENT PRIMARY KEY, owner VARCHAR(40) NOT NULL UNIQUE, balance DECIMAL(12,2) NOT NULL CHECK (balance >= 0), "
                    + "opened TIMESTAMP(6) NULL, photo LONGBLOB, note TEXT) ENGINE=" + engine);
            statement.execute("CREATE TABLE transfer (id BIGINT AUTO_INCREMENT PRIMARY KEY, source INT NOT NULL, target INT NOT NULL, amount DECIMAL(12,2) NOT NULL, KEY (source, target)) ENGINE=" + engine);
        }
    }

    static void keys(Connection connection) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO account (owner, balance) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int at = 1; at <= ACCOUNTS; at++) {
                insert.setString(1, "owner " + at);
                insert.setBigDecimal(2, new BigDecimal("100.00"));
                insert.addBatch();
            }
            check(insert.executeBatch().length == ACCOUNTS, "every row of the batch is counted");
            int seen = 0;
            try (ResultSet keys = insert.getGeneratedKeys()) {
                while (keys.next()) {
                    check(keys.getInt(1) == ++seen, "generated keys run from 1");
                }
            }
            check(seen == ACCOUNTS, "every row has a key");
            insert.setString(1, "owner 7");
            insert.setBigDecimal(2, BigDecimal.ONE);
            insert.addBatch();
            try {
                insert.executeBatch();
                check(false, "a second owner 7 is refused");
            } catch (BatchUpdateException error) {
                check(error.getErrorCode() == 1062, "by error 1062, not " + error.getErrorCode());
            }
        }
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE account SET balance = -1 WHERE id = 1");
            check(false, "a balance below 0 is refused");
        } catch (SQLException error) {
            check(error.getErrorCode() == 4025, "by error 4025, not " + error.getErrorCode());
        }
        connection.commit();
    }

    static void values(Connection connection) throws SQLException {
        byte[] photo = new byte[3_000_000];
        new Random(7).nextBytes(photo);
        String note = "żółw 🐢 ".repeat(5000);
        Timestamp opened = Timestamp.valueOf("2024-02-29 23:59:59.123456");
        try (PreparedStatement update = connection.prepareStatement("UPDATE account SET photo = ?, note = ?, opened = ? WHERE id = ?")) {
            update.setBytes(1, photo);
            update.setString(2, note);
            update.setTimestamp(3, opened);
            update.setInt(4, 3);
            check(update.executeUpdate() == 1, "one row is updated");
        }
        connection.commit();
        try (PreparedStatement select = connection.prepareStatement("SELECT photo, note, opened FROM account WHERE id = ?")) {
            select.setInt(1, 3);
            try (ResultSet rows = select.executeQuery()) {
                check(rows.next(), "the row is there");
                check(java.util.Arrays.equals(rows.getBytes(1), photo), "the photo came back");
                check(rows.getString(2).equals(note) && note.getBytes(StandardCharsets.UTF_8).length > 60000, "the note came back");
                check(rows.getTimestamp(3).equals(opened), "the time came back");
            }
        }
        connection.commit();
    }

    static void savepoints(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE account SET owner = 'A' WHERE id = 1");
            Savepoint point = connection.setSavepoint("point");
            statement.executeUpdate("DELETE FROM account WHERE id > 1");
            connection.rollback(point);
            statement.executeUpdate("UPDATE account SET owner = 'B' WHERE id = 2");
            connection.commit();
            try (ResultSet rows = statement.executeQuery("SELECT COUNT(*), SUM(owner IN ('A', 'B')) FROM account")) {
                rows.next();
                check(rows.getInt(1) == ACCOUNTS && rows.getInt(2) == 2, "what came after the savepoint is undone, and no more");
            }
        }
    }

    static void streams(Connection connection) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO transfer (source, target, amount) SELECT 1, 2, 0 FROM seq_1_to_20000")) {
            check(insert.executeUpdate() == 20000, "20000 rows are counted");
        }
        try (Statement statement = connection.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_READ_ONLY)) {
            statement.setFetchSize(100);
            long sum = 0;
            try (ResultSet rows = statement.executeQuery("SELECT id FROM transfer ORDER BY id")) {
                while (rows.next()) {
                    sum++;
                }
            }
            check(sum == 20000, "all rows are streamed");
        }
        connection.rollback();
    }

    static void metadata(Connection connection, String engine) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        List<String> indexes = new ArrayList<>();
        try (ResultSet rows = data.getIndexInfo("bank", null, "account", true, true)) {
            while (rows.next()) {
                indexes.add(rows.getString("INDEX_NAME"));
            }
        }
        check(indexes.contains("PRIMARY") && indexes.contains("owner"), "the unique indexes are listed: " + indexes);
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'bank' AND engine = '" + engine + "'")) {
            rows.next();
            check(rows.getInt(1) == 2, "both tables are " + engine + "'s");
        }
        connection.commit();
    }

    /** Threads move money at SERIALIZABLE and try again after deadlocks; no money is made or lost. */
    static void transfers() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        List<Future<Integer>> running = new ArrayList<>();
        for (int at = 0; at < THREADS; at++) {
            int seed = at;
            running.add(pool.submit(() -> move(new Random(seed))));
        }
        int again = 0;
        for (Future<Integer> one : running) {
            again += one.get(2, TimeUnit.MINUTES);
        }
        pool.shutdown();
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            try (ResultSet rows = statement.executeQuery("SELECT SUM(balance), MIN(balance) >= 0 FROM account")) {
                rows.next();
                check(rows.getBigDecimal(1).compareTo(new BigDecimal(ACCOUNTS * 100)) == 0 && rows.getBoolean(2), "the sum of balances stays: " + rows.getBigDecimal(1));
            }
            try (ResultSet rows = statement.executeQuery("SELECT COUNT(*) FROM account a WHERE balance <> 100 + (SELECT COALESCE(SUM(amount), 0) FROM transfer WHERE target = a.id) - (SELECT COALESCE(SUM(amount), 0) FROM transfer WHERE source = a.id)")) {
                rows.next();
                check(rows.getInt(1) == 0, "balances agree with the transfers");
            }
        }
        System.out.println(THREADS * TRANSFERS + " transfers, " + again + " tried again");
    }

    static int move(Random random) throws SQLException {
        int again = 0;
        try (Connection connection = connect()) {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            PreparedStatement read = connection.prepareStatement("SELECT balance FROM account WHERE id = ?");
            PreparedStatement write = connection.prepareStatement("UPDATE account SET balance = balance + ? WHERE id = ?");
            PreparedStatement note = connection.prepareStatement("INSERT INTO transfer (source, target, amount) VALUES (?, ?, ?)");
            for (int done = 0; done < TRANSFERS; ) {
                int source = 1 + random.nextInt(ACCOUNTS), target = 1 + random.nextInt(ACCOUNTS);
                BigDecimal amount = BigDecimal.valueOf(1 + random.nextInt(3000), 2);
                try {
                    read.setInt(1, source);
                    try (ResultSet rows = read.executeQuery()) {
                        rows.next();
                        amount = amount.min(rows.getBigDecimal(1));
                    }
                    add(write, source, amount.negate());
                    add(write, target, amount);
                    note.setInt(1, source);
                    note.setInt(2, target);
                    note.setBigDecimal(3, amount);
                    note.executeUpdate();
                    connection.commit();
                    done++;
                } catch (SQLIntegrityConstraintViolationException error) {
                    throw error;
                } catch (SQLException error) {
                    check(error.getErrorCode() == 1213 || error.getErrorCode() == 1205, "only deadlocks and time-outs, not " + error);
                    connection.rollback();
                    again++;
                }
            }
        }
        return again;
    }

    static void add(PreparedStatement write, int account, BigDecimal amount) throws SQLException {
        write.setBigDecimal(1, amount);
        write.setInt(2, account);
        check(write.executeUpdate() == 1 || amount.signum() == 0, "the account is there");
    }
}
